"""The memory: a library of videos with wall-clock times, saved objects, questions and their answers."""

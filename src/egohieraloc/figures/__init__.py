"""Figures for papers, drawn with matplotlib from the files that the other commands write."""

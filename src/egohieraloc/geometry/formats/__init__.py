"""Camera poses of other programs and devices: one file per format."""

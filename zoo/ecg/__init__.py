"""Electrocardiograms: records in and out, R peaks, beat classes, strips, segments and pictures."""

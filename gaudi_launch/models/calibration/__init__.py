"""Calibration for fp8 by the engines' own scripts."""

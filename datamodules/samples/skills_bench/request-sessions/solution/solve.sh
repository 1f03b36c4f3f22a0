#!/bin/sh
python solution/solve.py

"""Kernels: linear layers in several formats, quantisation, rotary positions."""

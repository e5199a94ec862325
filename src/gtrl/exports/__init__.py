"""Exports of a trained policy: an ONNX file, or one Python file that needs NumPy alone."""

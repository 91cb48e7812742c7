"""The version, in the one place that the build and the package both read."""

__version__ = "0.1.0"

"""pychasqui beside its peers on one machine and one server; `python -m benchmarks` runs it all."""

"""One small file a peer, each in its documented best set-up; `stage.py` is what they all stand on."""

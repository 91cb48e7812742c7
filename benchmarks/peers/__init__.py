"""One small file a peer, each in its documented best set-up; roles, stage and meter are what they stand on."""

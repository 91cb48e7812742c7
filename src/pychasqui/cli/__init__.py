"""The command `chasqui`: one file a command."""

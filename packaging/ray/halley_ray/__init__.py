"""Replicas of `halley serve` behind Ray Serve: README.md one folder up says how it is used."""

"""Experiments as plain numbers and names; they import nothing of ropejax."""

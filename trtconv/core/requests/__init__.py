"""What each command is asked, as plain values."""

"""What each command is asked and what it answers, as plain values with their JSON."""

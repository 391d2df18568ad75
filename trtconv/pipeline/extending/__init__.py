"""What users add to trtconv: rules of rewriting, and files of passes, rules, operators and references of their own."""

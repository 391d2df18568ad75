"""What tests share: models, runtimes that do as they are told, and ways to compare."""

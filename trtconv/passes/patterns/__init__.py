"""Rules of rewriting without code: their texts, where they match, and what they put there."""

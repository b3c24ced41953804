"""What a user declares: tables, landings, write modes, policies."""

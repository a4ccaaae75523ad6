"""The page: ES modules without a build step, served as they lie here."""

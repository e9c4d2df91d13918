"""Generated from /proto by the build; never edited, never committed."""

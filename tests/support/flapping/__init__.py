"""An ISR that shrinks and grows under producers of several clients, and what they stored."""

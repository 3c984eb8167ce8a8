"""The pages of the console: what each asks the cluster for, and how it is shown."""

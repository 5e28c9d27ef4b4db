"""What a job is: its definition and registry, its payload, its retry policy, and the records that drivers take."""

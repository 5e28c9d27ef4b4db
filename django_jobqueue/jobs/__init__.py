"""What a job is: its definition and registry, its payload, its retry policy, and the records that cross the driver seam."""

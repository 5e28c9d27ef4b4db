"""What runs a job: ``execution`` is the heart, ``worker`` the loop around it, ``pool`` the process around that."""

"""What every room speaks: errors, findings, dimensions, requests and reports. Imports nothing of ours."""

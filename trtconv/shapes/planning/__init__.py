"""Traffic to profiles: the division into optimization profiles that costs least for the requests that come."""

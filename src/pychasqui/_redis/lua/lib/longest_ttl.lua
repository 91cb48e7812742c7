local longest_ttl_ms = 9e15  -- Redis refuses a TTL that is much longer

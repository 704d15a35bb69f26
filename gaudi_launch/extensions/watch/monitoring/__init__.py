"""Alert rules, dashboard and scrape configuration."""

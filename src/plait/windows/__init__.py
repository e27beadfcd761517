"""What operators remember: join window segments here; panes and W-Hive beside them."""

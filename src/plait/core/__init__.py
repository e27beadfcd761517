"""What all executors compute with: no threads, no Spark. The reference uses none of it."""

"""From a query to ranges on the driver, from ranges to Arrow batches on the executors."""

"""What every probe stands on: results, statistics, problems, sites, controls. It knows no probe."""

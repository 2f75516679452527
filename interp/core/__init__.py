"""What all probes use: results, statistics, problems, sites, controls. Nothing here imports a probe."""

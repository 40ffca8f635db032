"""Studies: configs with get_sweep beside get_config; see experiments/study/."""

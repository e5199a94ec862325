"""Reports: tables, figures and videos of run directories and datasets."""

"""Reports: tables and pictures, from files only."""

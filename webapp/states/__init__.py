"""What pipelines and states there are: read by selectors, kept small by services, shown in the admin."""

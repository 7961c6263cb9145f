"""What people look at: the dashboard and saved views."""

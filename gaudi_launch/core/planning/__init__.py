"""Request, Host and Model in; Plan out. Pure: no file, no process, no clock."""

"""What models consist of, as data. Nothing here knows torch, so that commands can check it in no time."""

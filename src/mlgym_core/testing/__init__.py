"""What authors of plugins use to test their tasks, backends, tools and models; needs pytest only where it is used."""

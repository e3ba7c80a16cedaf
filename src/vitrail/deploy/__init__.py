"""From a trained model to what answers: exported graphs, engines that run them, measurements, a server."""

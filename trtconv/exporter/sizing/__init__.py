"""Which sizes a module takes: by trial, by the guards of torch.export, and where the two disagree."""

"""What is hooked into a user's program: modules, gradients, what autograd saves, what is alive."""

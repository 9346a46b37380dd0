"""Two versions of leafward side by side: the working tree and a commit."""

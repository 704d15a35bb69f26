"""The shipped profiles and the user's."""

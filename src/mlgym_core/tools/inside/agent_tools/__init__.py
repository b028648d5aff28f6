"""The tools' programs; ../README.md says what they may use."""

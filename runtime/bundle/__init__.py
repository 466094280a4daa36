"""The contract between the halves: manifest types, integrity, safe paths and errors. Imports neither half."""

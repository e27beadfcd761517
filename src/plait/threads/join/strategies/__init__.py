"""The papers' join systems as plans for workers, and which of them fits."""

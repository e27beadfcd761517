"""How machine code is made: marked, compiled out of reach of interrupts, and kept on disk under a stamp."""

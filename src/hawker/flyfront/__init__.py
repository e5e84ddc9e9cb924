"""What an unmodified flyctl asks beside the Machines API: GraphQL, and the calls below /api/v1."""
